"""The verb `doctor`: which preprocessing a model was trained with."""
