from data_stack.reproduce.dataset_report import DatasetReport as DatasetReport
from data_stack.reproduce.difference import DatasetDiff as DatasetDiff
