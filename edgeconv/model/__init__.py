"""A model file, read without running it: `source` has SavedModels and Keras, `tflite` .tflite."""
