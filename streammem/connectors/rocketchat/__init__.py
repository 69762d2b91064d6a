"""Rocket.Chat: collections of its Mongo database as mongoexport or bsondump write them."""
