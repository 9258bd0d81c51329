from data_stack.dataset.display.contact_sheet import contact_sheet as contact_sheet
from data_stack.display.difference import DatasetDiff as DatasetDiff
from data_stack.display.report import DatasetReport as DatasetReport
