"""Training under TensorFlow's distribution strategies, in children.

    member ─► strategies, spec ─► epochs ─► loops ─► feeding
                                       │
                                       └─► checkpoints, evaluation, journal

`member` is one process of a training; `epochs` goes through them and is the same for every
strategy and loop; a loop does the steps of one epoch. Each works with tf_keras and Keras 3.
"""
