"""What a trained model does: measures that take plain tensors, or any module and a `Tap`."""
