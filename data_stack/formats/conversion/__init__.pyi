from data_stack.formats.conversion.conversion import ConversionReport as ConversionReport
from data_stack.formats.conversion.conversion import convert as convert
from data_stack.formats.conversion.location import FORMATS as FORMATS

__all__: list[str]
