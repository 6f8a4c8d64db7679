"""The judge: decides from the events of a log whether every guarantee was kept. It knows neither lakes nor servers."""
