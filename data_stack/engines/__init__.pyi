from data_stack.engines.engine import PreparationEngine as PreparationEngine
from data_stack.engines.process_engine import ProcessEngine as ProcessEngine
