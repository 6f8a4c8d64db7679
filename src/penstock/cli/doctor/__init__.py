"""The examinations of `penstock doctor`: what about this machine would surprise a user of Penstock."""
