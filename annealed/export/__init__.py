"""Files written completely or not at all."""

from annealed.export.files import STANDARD_OUTPUT, check_writable, write_then_rename

__all__ = ["STANDARD_OUTPUT", "check_writable", "write_then_rename"]
