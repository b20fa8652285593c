"""MA-Echo: global and local models that move towards each other where the clients' data do not see it."""
