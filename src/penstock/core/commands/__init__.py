"""Commands on jobs that are functions outside the class Engine."""
