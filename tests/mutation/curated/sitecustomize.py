"""Loads one module of `oso_dp` from another file.

Python imports this file if its folder is in PYTHONPATH. OSO_PLANTED_MODULE names the module and
OSO_PLANTED_FILE the other file. A process that a test starts inherits these variables and so the
fault.
"""

import importlib.machinery
import os
import sys
from types import CodeType


class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        with open(os.environ["OSO_PLANTED_FILE"], encoding="utf-8") as file:
            return compile(file.read(), self.path, "exec", dont_inherit=True)


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != os.environ.get("OSO_PLANTED_MODULE"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = Loader(name, spec.origin)
        return spec


sys.meta_path.insert(0, Finder)
