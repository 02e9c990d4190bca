"""Draw recorded robots as pictures that move, without a display and without a browser.

    camera.py   where the camera stands, and where points of the world appear in the picture
    shapes.py   the shapes of a scene as capsules and triangles, and their colours
    pixels.py   the pixels that parts of a picture cover, for all parts at once
    floor.py    a picture of the floor: squares, trails and shadows
    canvas.py   a picture on which capsules and triangles are drawn
    text.py     a line of text on a picture
    film.py     the frames of one robot, of several side by side, or of many in one world
    movie.py    a film as a GIF or MP4 file
    helpers.py  processes that draw parts of a film

Everything is NumPy and Pillow: nothing here loads JAX, so that helpers start fast.
`elites.viewer.filming` records the robots of a run and calls `film`.
"""
