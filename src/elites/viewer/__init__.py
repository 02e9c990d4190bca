"""A local web page to walk through the archive of a run: `elites view RUN`.

- `data`: what the page is told of a run, from its files alone
- `replay`: an elite or the actor, rolled out again for the eye: poses of the bodies
- `answers`: what the page can ask for
- `server`: the page on 127.0.0.1, and who may ask for it
- `export`: the same page as one file that needs no server
- `static/`: the page itself; plain modules, no build step, and three.js as released
"""
