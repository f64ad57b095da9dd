"""The only folder that imports TensorFlow, and only inside functions that run in a child.

Importing a module of this folder is cheap: the parent process does so to name the
function that `edgeconv.system.processes.tasks.start_task` runs.
"""
