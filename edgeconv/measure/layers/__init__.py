"""The layers of a model: the time of each operator, the error of each layer."""
