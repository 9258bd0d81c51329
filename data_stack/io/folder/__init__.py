"""Folders of a dataset's files: on this machine, or below a prefix of any store.

A format passes ``source`` and ``prefix`` of its user to :func:`folder_of`, and then opens, lists,
publishes and deletes files by name.
"""

from data_stack.io.folder.folder import Folder as Folder
from data_stack.io.folder.listed_folder import ListedFolder as ListedFolder
from data_stack.io.folder.local_folder import LocalFolder as LocalFolder
from data_stack.io.folder.opening import folder_of as folder_of
