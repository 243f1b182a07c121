"""The controller of a federation on disk: what agents send goes in, sums come out. No sockets here."""
