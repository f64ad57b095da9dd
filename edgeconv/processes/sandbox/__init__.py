"""What a child process may do: which files it may touch, and by which profile it runs.

access      what is granted to one child
profiles    what each kind of child may do, as data
walls       what this machine has to confine a child with
policy      how a child is started, so that it can do no more
enter       the program that confines itself, and goes on as the child
"""

from edgeconv.processes.sandbox.access import Access, Profile
from edgeconv.processes.sandbox.policy import StartCommand, environment_of, start_command
from edgeconv.processes.sandbox.walls import Mode, available, using

__all__ = [
    "Access",
    "StartCommand",
    "Mode",
    "Profile",
    "available",
    "start_command",
    "environment_of",
    "using",
]
