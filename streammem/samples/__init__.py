"""The sample workspace behind `streammem demo`, and questions with the messages that answer them.

`harbourlight/` is a Slack export of an invented company (berth booking and harbour dues; all people, harbours and
vendors are made up, the text was written for this project): users.json, channels.json, groups.json with one private
channel, and a day file for each channel and UTC day, 2 March to 10 April 2026. `questions.json` holds four questions
({kind, question, asker, evidence}); evidence lists the (channel, ts) that a complete answer must contain.
Data only, no code.
"""
