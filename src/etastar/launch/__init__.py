"""On which machines is a plan run, and how does nothing get lost on the way? One contract, four executors."""
