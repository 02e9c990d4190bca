"""Local web page that shows the archive of a run: `elites view RUN`.

- `data`: reads a run's data for the page from its files
- `recording`: runs policies again and records their poses
- `paths`: computes the paths of all elites of an archive
- `player`: loads the policies of a run and records an elite or the actor
- `api`: the endpoints of the page
- `connections`: limits the connections, and refuses those without a token
- `server`: serves the page on 127.0.0.1 and checks who may read it
- `export`: writes the page as one file that a browser can open without a server
- `static/`: the page itself, in plain modules without a build step, and three.js as released
"""
