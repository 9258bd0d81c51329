from data_stack.reproduce.difference import DatasetDiff as DatasetDiff
from data_stack.reproduce.planning import DatasetReport as DatasetReport
