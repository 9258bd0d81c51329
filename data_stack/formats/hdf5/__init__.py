"""HDF5 files, which are read by row from any store, without following links."""

from data_stack.formats.hdf5.iterator import HDF5DatasetIterator as HDF5DatasetIterator
from data_stack.formats.hdf5.listing import dataset_keys as dataset_keys
from data_stack.formats.hdf5.listing import datasets_to_read as datasets_to_read
from data_stack.formats.hdf5.writing import write_hdf5 as write_hdf5
