"""What goes through the cluster's store: the image, this broker's registration, the controller's decisions,
and requests for the controller."""
