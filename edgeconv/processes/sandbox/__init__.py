"""What a child process may do: the files that it may touch, and its profile.

access      what is granted to one child
profiles    what each kind of child may do, as data
walls       how this machine can confine a child
policy      the command that starts a confined child
enter       the program that confines itself, and continues as the child
"""

from edgeconv.processes.sandbox.access import Access, Profile
from edgeconv.processes.sandbox.policy import StartCommand, environment_of, start_command
from edgeconv.processes.sandbox.walls import available, sandbox_mode, using

__all__ = [
    "Access",
    "StartCommand",
    "Profile",
    "available",
    "start_command",
    "environment_of",
    "sandbox_mode",
    "using",
]
