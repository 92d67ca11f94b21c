"""Training and using models: objectives, the loop and its callbacks, checkpoints, calibration, predictions."""
