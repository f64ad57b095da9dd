"""What a child process may do: the files that it may touch, and its profile.

policy      what each kind of child may do, as data, how this machine can confine it, and the
            command that starts one so confined
enter       the program that confines itself, and continues as the child
pools       what the child calls before a library makes a pool of threads
"""

from edgeconv.system.processes.sandbox.policy import (
    Access as Access,
    available as available,
    environment_of as environment_of,
    sandbox_mode as sandbox_mode,
    start_command as start_command,
    using as using,
)
