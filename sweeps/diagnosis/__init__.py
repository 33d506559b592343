"""Why acceptance is low, why it is slow, and what is wrong with a configuration: rules over evidence, one noun a file."""
