"""Training under TensorFlow's distribution strategies, in children, with tf_keras and Keras 3.

    member ─► strategies, spec ─► epochs ─► loops ─► feeding
                                       │
                                       └─► checkpoints, evaluation, journal

`member` is one process of a training. `epochs` is the same for every strategy and loop; a loop does
the steps of one epoch.
"""
