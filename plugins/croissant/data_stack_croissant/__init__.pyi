from data_stack_croissant.croissant_dataset import CroissantDataset as CroissantDataset
from data_stack_croissant.reading import from_croissant as from_croissant
from data_stack_croissant.writing import to_croissant as to_croissant

__all__: list[str]
