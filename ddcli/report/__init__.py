"""What people look at: how far a run is, what its operators did, and pictures of the operator graph. It changes nothing."""
