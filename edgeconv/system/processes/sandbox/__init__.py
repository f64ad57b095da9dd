"""What a child process may do: the files that it may touch, and its profile.

profiles    what one child is granted, and what each kind of child may do, as data
walls       how this machine can confine a child
policy      the command that starts a confined child
enter       the program that confines itself, and continues as the child
pools       what the child calls before a library makes a pool of threads
"""

from edgeconv.system.processes.sandbox.profiles import Access as Access, Profile as Profile
from edgeconv.system.processes.sandbox.policy import (
    StartCommand as StartCommand,
    environment_of as environment_of,
    start_command as start_command,
)
from edgeconv.system.processes.sandbox.walls import (
    available as available,
    sandbox_mode as sandbox_mode,
    using as using,
)
