"""`penstock import`: reading jobs of other systems and of JSON lines."""
