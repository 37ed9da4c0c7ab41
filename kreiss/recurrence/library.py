"""What the recurrences use of the compiled library."""

from kreiss.native import INTERFACE as INTERFACE
from kreiss.native import LIBRARY as LIBRARY
from kreiss.native import LONG as LONG
from kreiss.native import call as call
from kreiss.native import expect as expect
from kreiss.native import library as library
from kreiss.native import loaded as loaded
from kreiss.native import readable as readable
from kreiss.native import readable_or_none as readable_or_none
from kreiss.native import room as room
from kreiss.native import status as status
from kreiss.native import takes as takes
from kreiss.native import unknown_symbol as unknown_symbol

CODES = {"identity": 0, "tanh": 1, "relu": 2, "modrelu": 3, "cmodrelu": 4}
