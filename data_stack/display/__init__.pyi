from data_stack.reproduce.dataset_report import DatasetReport as DatasetReport
from data_stack.reproduce.difference import DatasetDiff as DatasetDiff
from data_stack.show.contact_sheet import contact_sheet as contact_sheet
