"""Writes a SavedModel of so many equal convolutions, with weights of a fixed seed.

python make_chain.py DIRECTORY LAYERS
"""

import sys


def main() -> None:
    import tf_keras as keras

    directory, layers = sys.argv[1], int(sys.argv[2])
    keras.utils.set_random_seed(0)
    image = x = keras.Input((32, 32, 16), name="image")
    for _ in range(layers):
        x = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    x = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x))
    keras.Model(image, x).export(directory)


if __name__ == "__main__":
    main()
