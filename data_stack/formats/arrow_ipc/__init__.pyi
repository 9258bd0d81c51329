from data_stack.formats.arrow_ipc.arrow_dataset import ArrowDataset as ArrowDataset

__all__: list[str]
