"""Draw recorded robots as pictures that move, without a display and without a browser.

    camera.py   where the camera stands, and where points of the world appear in the picture
    shapes.py   the shapes of a scene as capsules and triangles, and their colours
    canvas.py   a picture: floor, shadows, trails, capsules and triangles
    film.py     the frames of one robot, of several side by side, or of many in one world
    movie.py    frames as a GIF or MP4 file

Everything is NumPy. `elites.viewer.filming` records the robots of a run and calls `film`.
"""
