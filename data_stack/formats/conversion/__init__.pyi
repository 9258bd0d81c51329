from data_stack.formats.conversion.conversion import ConversionReport as ConversionReport
from data_stack.formats.conversion.conversion import convert as convert

__all__: list[str]
