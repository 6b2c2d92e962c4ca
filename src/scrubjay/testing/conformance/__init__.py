"""What every backend must do, as tests by capability. See `scrubjay.testing` for how to use it."""
