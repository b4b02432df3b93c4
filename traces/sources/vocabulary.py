"""The words that synthetic prompts are composed of, written for this project.

Each tuple is ordered: earlier entries are drawn more often (see `traces.sources.synthetic`).
"""

MEDIUMS = (
    "a portrait", "a digital painting", "a photograph", "concept art", "an oil painting", "a 3d render",
    "a watercolour", "an illustration", "a pencil sketch", "a poster", "a mezzotint", "a woodcut",
    "a film still", "a macro photo", "a fresco", "an ink drawing", "a stained glass window",
    "a matte painting", "a pastel study", "a linocut", "a children's book page", "a tapestry",
    "a blueprint", "pixel art",
)  # fmt: skip

QUALITIES = (
    "young", "ancient", "giant", "tiny", "glowing", "mechanical", "melancholic", "cheerful", "armoured",
    "translucent", "bearded", "golden", "haunted", "floating", "sleeping", "elegant", "crystal",
    "rusty", "masked", "snow covered", "feathered", "wooden", "cybernetic", "wandering", "crowned",
    "furious", "wise", "abandoned", "colourful", "porcelain", "winged", "hooded", "half submerged",
    "overgrown", "clockwork", "cloaked", "scarred", "laughing", "weathered", "velvet", "paper",
    "marble", "burning", "frozen", "shy", "luminous", "antlered", "moss covered", "copper", "spectral",
    "plump", "solemn", "striped", "mirrored",
)  # fmt: skip

SUBJECTS = (
    "woman", "cat", "astronaut", "castle", "dragon", "robot", "wizard", "city", "knight", "forest",
    "wolf", "girl with red hair", "old man", "spaceship", "lighthouse", "fox", "queen", "samurai",
    "house", "owl", "mermaid", "car", "witch", "mountain", "tiger", "monk", "tree", "temple", "pirate",
    "whale", "train", "raven", "library", "goddess", "bear", "king", "skeleton", "garden", "dog",
    "ship", "elf", "bridge", "horse", "scientist", "octopus", "cathedral", "dancer", "village", "lion",
    "android", "tower", "chef", "butterfly", "detective", "tortoise", "airship", "violinist", "island",
    "deer", "mushroom house", "market", "fisherman", "phoenix", "windmill", "shaman", "panda",
    "motorcycle", "beekeeper", "statue", "jellyfish", "gardener", "volcano", "frog", "nun", "clock",
    "peacock", "submarine", "giraffe", "blacksmith", "teapot", "hedgehog", "orchestra", "greenhouse",
    "crow", "ballerina", "golem", "harbour", "rabbit", "postman", "moth", "observatory", "elephant",
    "librarian", "waterfall", "snail", "carousel", "viking", "bakery", "swan", "puppet", "archer",
    "lantern", "goblin", "tram", "sculptor", "heron", "barn", "kraken", "juggler", "cactus", "sphinx",
    "ferry", "weaver", "squirrel", "aqueduct", "minotaur", "pilot", "walrus",
)  # fmt: skip

PLACES = (
    "in a forest", "in the rain", "at sunset", "in space", "on a cliff", "under water",
    "in a ruined city", "in the snow", "on a throne", "at night", "in a desert", "in a neon street",
    "on the moon", "by the sea", "in a meadow", "inside a cave", "on a rooftop", "in a crowded tavern",
    "among the clouds", "in a swamp", "in a field of poppies", "at a train station",
    "in a bamboo grove", "on a frozen lake", "in a workshop", "beside a river", "in a hall of mirrors",
    "in a bookshop", "on a battlefield", "at dawn", "in a jungle", "inside a snow globe",
    "in a foggy harbour", "on a stage", "in an orchard", "under an aurora", "in a marble courtyard",
    "on a floating island", "in a kitchen", "at a carnival", "in a canyon", "under a starry sky",
    "in a thunderstorm", "on a spiral staircase", "in a flooded street", "at high noon",
)  # fmt: skip

STYLES = (
    "fantasy", "baroque", "art nouveau", "cyberpunk", "impressionist", "studio anime", "surrealist",
    "gothic", "minimalist", "steampunk", "renaissance", "pop art", "romanticism", "ukiyo-e",
    "photorealistic", "art deco", "science fiction", "expressionist", "vaporwave", "dutch golden age",
    "cubist", "retro futurism", "folk art", "bauhaus", "pointillist", "noir", "rococo", "brutalist",
    "pre-raphaelite", "vintage travel", "constructivist", "dark fairy tale", "medieval manuscript",
    "film photography", "symbolist", "claymation",
)  # fmt: skip

LIGHTS = (
    "dramatic lighting", "soft light", "golden hour", "volumetric light", "studio lighting",
    "moonlight", "rim light", "candle light", "neon glow", "overcast sky", "backlit", "morning haze",
    "harsh shadows", "low key light", "light through leaves", "twilight", "firelight",
    "pale winter sun", "stage light",
)  # fmt: skip

MODIFIERS = (
    "highly detailed", "sharp focus", "intricate", "8 k", "smooth", "wide angle", "cinematic",
    "elegant lines", "muted colours", "vivid colours", "symmetrical", "close up", "full body",
    "depth of field", "centred", "ornate", "award winning", "hyper detailed", "film grain", "bokeh",
    "clean background", "bold outlines", "low angle", "pastel palette", "high contrast", "monochrome",
    "fine texture", "thick brush strokes", "from above", "glossy", "long exposure", "soft edges",
    "geometric", "flat colours", "grainy paper", "tilt shift", "golden ratio", "limited palette",
    "crosshatching", "dust in the air", "iridescent", "shallow focus", "isometric", "panoramic",
    "weathered paper", "white border", "mist", "lush", "serene",
)  # fmt: skip
