"""Copies resources between stores: verified, in parallel, resumable."""

from data_stack.io.copying.copier import check_apart as check_apart
from data_stack.io.copying.copier import copy_groups as copy_groups
from data_stack.io.copying.group import CopyGroup as CopyGroup
from data_stack.io.copying.group import CopyItem as CopyItem
from data_stack.io.copying.group import SmallFile as SmallFile
from data_stack.io.copying.report import Copied as Copied
from data_stack.io.copying.report import CopyReport as CopyReport
