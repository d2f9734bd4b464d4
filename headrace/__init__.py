"""Headrace's command line: reads the config and the data, starts the services and looks after them."""
