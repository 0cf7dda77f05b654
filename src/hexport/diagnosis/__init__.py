"""Looking at a machine: what works, what does not, why it matters, and the exact fix.

What is known of the machine is gathered once (``machine.py``, ``installed.py``, ``libraries.py``,
``probing.py``); every check is a function of that, so that any machine can be examined on any other.
"""

from hexport.diagnosis.examine import doctor
from hexport.diagnosis.report import Finding, Report

__all__ = ["Finding", "Report", "doctor"]
