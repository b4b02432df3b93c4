"""The words that synthetic prompts are composed of, written for this project.

Earlier entries of a tuple are drawn more often (see `traces.synthetic.prompts`). The artists are invented.
"""

MEDIUMS = (
    "a portrait of", "a digital painting of", "a photograph of", "concept art of", "an oil painting of",
    "a 3d render of", "a watercolour of", "an illustration of", "a pencil sketch of", "a poster of", "a mezzotint of",
    "a woodcut of", "a film still of", "a macro photo of", "a fresco of", "an ink drawing of",
    "a stained glass window of", "a matte painting of", "a pastel study of", "a linocut of",
    "a children's book page of", "a tapestry of", "a blueprint of", "pixel art of", "a close up of", "a wide shot of",
    "a sculpture of", "a comic panel of", "an album cover with", "a postcard of", "a book cover with",
    "a low poly model of", "an etching of", "a diorama of", "a mural of", "a logo of", "a sticker of",
    "a screenshot of", "a polaroid of", "a character sheet of", "an aerial view of", "a mosaic of", "a plush toy of",
    "an embroidery of", "a scroll painting of", "a cutaway drawing of",
)  # fmt: skip

QUALITIES = (
    "young", "ancient", "giant", "tiny", "glowing", "mechanical", "melancholic", "cheerful", "armoured",
    "translucent", "bearded", "golden", "haunted", "floating", "sleeping", "elegant", "crystal", "rusty", "masked",
    "snow covered", "feathered", "wooden", "cybernetic", "wandering", "crowned", "furious", "wise", "abandoned",
    "colourful", "porcelain", "winged", "hooded", "half submerged", "overgrown", "clockwork", "cloaked", "scarred",
    "laughing", "weathered", "velvet", "paper", "marble", "burning", "frozen", "shy", "luminous", "antlered",
    "moss covered", "copper", "spectral", "plump", "solemn", "striped", "mirrored", "angry", "transparent", "bronze",
    "royal", "curious", "tattooed", "gentle", "blind", "grumpy", "silver", "neon", "drowned", "chubby", "skinny",
    "fluffy", "spiky", "woolly", "bald", "proud", "dusty", "inflatable", "knitted", "ceramic", "levitating",
    "whispering", "smiling", "crying", "sinister", "lonely", "noble", "ragged", "nomadic", "muscular", "slender",
    "graceful", "clumsy", "bioluminescent", "holographic", "skeletal", "zombie", "vampire", "steam powered", "solar",
    "nuclear", "undersea", "arctic", "tropical", "victorian", "babylonian", "nordic", "mongolian", "andean",
    "sahelian", "tuscan", "byzantine", "celtic", "edwardian", "martian", "lunar", "cosmic", "quantum", "pink",
    "turquoise", "crimson", "emerald", "indigo", "ochre", "ivory", "violet", "amber", "cobalt", "jade", "obsidian",
    "scarlet", "sapphire", "charcoal", "lavender", "mustard", "teal", "maroon", "beige", "two headed", "three eyed",
    "horned", "fanged", "faceless", "many armed", "one eyed", "bandaged", "painted", "stitched", "gilded",
    "embroidered", "lacquered", "cracked", "dripping", "melting", "exploding", "dissolving", "folded", "tangled",
    "braided", "woven", "hollow", "swollen", "petrified", "enchanted", "cursed", "blessed", "sacred", "forbidden",
    "forgotten", "hidden", "lost", "runaway", "retired", "rebellious", "imperial", "rural", "suburban", "nocturnal",
    "feral", "tame",
)  # fmt: skip

SUBJECTS = (
    "woman", "cat", "astronaut", "castle", "dragon", "robot", "wizard", "city", "knight", "forest", "wolf",
    "girl with red hair", "old man", "spaceship", "lighthouse", "fox", "queen", "samurai", "house", "owl", "mermaid",
    "car", "witch", "mountain", "tiger", "monk", "tree", "temple", "pirate", "whale", "train", "raven", "library",
    "goddess", "bear", "king", "skeleton", "garden", "dog", "ship", "elf", "bridge", "horse", "scientist", "octopus",
    "cathedral", "dancer", "village", "lion", "android", "tower", "chef", "butterfly", "detective", "tortoise",
    "airship", "violinist", "island", "deer", "mushroom house", "market", "fisherman", "phoenix", "windmill",
    "shaman", "panda", "motorcycle", "beekeeper", "statue", "jellyfish", "gardener", "volcano", "frog", "nun",
    "clock", "peacock", "submarine", "giraffe", "blacksmith", "teapot", "hedgehog", "orchestra", "greenhouse", "crow",
    "ballerina", "golem", "harbour", "rabbit", "postman", "moth", "observatory", "elephant", "librarian", "waterfall",
    "snail", "carousel", "viking", "bakery", "swan", "puppet", "archer", "lantern", "goblin", "tram", "sculptor",
    "heron", "barn", "kraken", "juggler", "cactus", "sphinx", "ferry", "weaver", "squirrel", "aqueduct", "minotaur",
    "pilot", "walrus", "warrior", "princess", "soldier", "alien", "demon", "angel", "vampire hunter", "cyborg",
    "ninja", "gangster", "cowboy", "farmer", "sailor", "baker", "butcher", "tailor", "painter", "poet", "drummer",
    "guitarist", "pianist", "cellist", "trumpeter", "boxer", "wrestler", "gymnast", "surfer", "skater", "cyclist",
    "climber", "diver", "swimmer", "hunter", "ranger", "druid", "alchemist", "necromancer", "sorceress", "paladin",
    "bard", "rogue", "berserker", "priestess", "oracle", "prophet", "pilgrim", "hermit", "beggar", "merchant",
    "miner", "lumberjack", "engineer", "mechanic", "plumber", "surgeon", "nurse", "dentist", "teacher", "student",
    "professor", "judge", "lawyer", "journalist", "spy", "astronomer", "botanist", "geologist", "explorer",
    "cartographer", "archaeologist", "gladiator", "centurion", "pharaoh", "emperor", "empress", "sultan", "duchess",
    "baron", "jester", "acrobat", "clown", "magician", "mime", "toddler", "grandmother", "grandfather", "bride",
    "groom", "twin sisters", "toad", "lizard", "chameleon", "gecko", "crocodile", "snake", "cobra", "dinosaur",
    "mammoth", "rhinoceros", "hippo", "zebra", "camel", "llama", "alpaca", "goat", "sheep", "cow", "bull", "bison",
    "moose", "reindeer", "boar", "pig", "badger", "otter", "beaver", "mole", "rat", "mouse", "bat", "sloth", "koala",
    "kangaroo", "platypus", "gorilla", "chimpanzee", "lemur", "meerkat", "hyena", "jackal", "leopard", "cheetah",
    "lynx", "panther", "eagle", "falcon", "hawk", "vulture", "parrot", "toucan", "flamingo", "pelican", "penguin",
    "puffin", "seagull", "stork", "crane", "sparrow", "robin", "kingfisher", "hummingbird", "woodpecker", "pigeon",
    "goose", "duck", "rooster", "turkey", "ostrich", "shark", "dolphin", "seal", "manta ray", "seahorse", "squid",
    "crab", "lobster", "starfish", "coral reef", "goldfish", "salmon", "eel", "spider", "scorpion", "beetle",
    "ladybird", "dragonfly", "wasp", "ant", "grasshopper", "mantis", "caterpillar", "centipede", "worm", "griffin",
    "unicorn", "pegasus", "centaur", "satyr", "nymph", "siren", "hydra", "basilisk", "gargoyle", "banshee", "ghoul",
    "werewolf", "yeti", "troll", "ogre", "gnome", "dwarf", "imp", "djinn", "leviathan", "chimera", "car wreck",
    "truck", "bus", "tractor", "bicycle", "scooter", "steam engine", "rocket", "satellite", "space station",
    "hot air balloon", "zeppelin", "biplane", "helicopter", "glider", "sailboat", "canoe", "rowing boat", "galleon",
    "steamship", "aircraft carrier", "tank", "mech suit", "drone", "skyscraper", "cottage", "mansion", "palace",
    "fortress", "monastery", "mosque", "pagoda", "pyramid", "ziggurat", "obelisk", "colosseum", "amphitheatre",
    "stadium", "factory", "warehouse", "power plant", "refinery", "oil rig", "dam", "canal", "pier",
    "railway station", "subway tunnel", "airport", "hospital", "school", "prison", "museum", "theatre", "cinema",
    "diner", "cafe", "pub", "hotel lobby", "bedroom", "bathroom", "attic", "basement", "staircase", "balcony",
    "courtyard", "fountain", "gazebo", "maze", "graveyard", "crypt", "well", "gate", "portal", "shrine", "totem",
    "throne", "altar", "mirror", "window", "door", "chair", "table", "lamp", "chandelier", "candle", "vase", "teacup",
    "spoon", "knife", "sword", "axe", "bow", "shield", "helmet", "gauntlet", "crown", "ring", "necklace", "amulet",
    "mask", "glove", "boot", "hat", "cape", "kimono", "dress", "suit", "umbrella", "suitcase", "backpack",
    "telescope", "microscope", "compass", "hourglass", "pocket watch", "typewriter", "gramophone", "radio",
    "television", "computer", "arcade machine", "telephone", "camera", "piano", "guitar", "violin", "drum", "harp",
    "flute", "book", "scroll", "map", "letter", "key", "lock", "chest", "coin", "gem", "apple", "pear", "orange",
    "lemon", "peach", "cherry", "strawberry", "pineapple", "watermelon", "pumpkin", "tomato", "onion", "carrot",
    "cabbage", "mushroom", "loaf of bread", "cheese wheel", "cake", "doughnut", "pancake stack", "pizza", "burger",
    "sandwich", "noodle bowl", "sushi platter", "ice cream", "chocolate bar", "coffee cup", "beer mug", "wine bottle",
    "cocktail", "rose", "tulip", "sunflower", "orchid", "lily", "daisy", "poppy", "lotus", "fern", "ivy", "oak",
    "birch", "willow", "pine", "maple", "cypress", "palm", "baobab", "bonsai", "bamboo", "river", "lake", "pond",
    "stream", "glacier", "iceberg", "desert", "dune", "oasis", "savanna", "steppe", "tundra", "jungle", "marsh",
    "valley", "gorge", "cave", "cliff", "beach", "reef", "lagoon", "archipelago", "storm", "tornado",
    "lightning bolt", "rainbow", "nebula", "galaxy", "comet", "black hole", "planet", "eclipse", "aurora", "sunrise",
    "moonrise", "meteor shower",
)  # fmt: skip

PLACES = (
    "in a forest", "in the rain", "at sunset", "in space", "on a cliff", "under water", "in a ruined city",
    "in the snow", "on a throne", "at night", "in a desert", "in a neon street", "on the moon", "by the sea",
    "in a meadow", "inside a cave", "on a rooftop", "in a crowded tavern", "among the clouds", "in a swamp",
    "in a field of poppies", "at a train station", "in a bamboo grove", "on a frozen lake", "in a workshop",
    "beside a river", "in a hall of mirrors", "in a bookshop", "on a battlefield", "at dawn", "in a jungle",
    "inside a snow globe", "in a foggy harbour", "on a stage", "in an orchard", "under an aurora",
    "in a marble courtyard", "on a floating island", "in a kitchen", "at a carnival", "in a canyon",
    "under a starry sky", "in a thunderstorm", "on a spiral staircase", "in a flooded street", "at high noon",
    "in a greenhouse", "on a tightrope", "under a bridge", "beside a campfire", "behind a waterfall",
    "in a cathedral", "on a mountain pass", "in a sunken temple", "at a bus stop", "in an empty supermarket",
    "in a laundromat", "in an elevator", "on an escalator", "in a parking lot", "on a motorway", "in a wheat field",
    "in a vineyard", "in a rice terrace", "on a pier", "in a lighthouse", "in a submarine", "in a cockpit",
    "on a space station", "on mars", "in zero gravity", "inside a volcano", "in an ice palace", "in a dungeon",
    "in a throne room", "in a ballroom", "in a banquet hall", "in a wine cellar", "in a library", "in a laboratory",
    "in an observatory", "in a clock tower", "in a toy shop", "in a museum", "in an aquarium", "at a zoo",
    "at a funfair", "in a circus tent", "in a boxing ring", "on a racetrack", "on a tennis court",
    "in a swimming pool", "in a bathtub", "in a teacup", "in a bottle", "in a suitcase", "on a leaf", "on a lily pad",
    "in a bird nest", "in a treehouse", "in a hammock", "on a swing", "on a park bench", "in a playground",
    "in a schoolyard", "in a back alley", "in a subway car", "in an art gallery", "in a recording studio",
    "in a barber shop", "in a diner", "in a noodle bar", "in a greek village", "in a mountain monastery",
    "in a walled garden", "in a hedge maze", "in a pumpkin patch", "in an apple orchard", "in a birch forest",
    "in a mangrove", "in a salt flat", "in a crater", "on a dune", "in a fjord", "on a glacier", "in a blizzard",
    "in heavy fog", "in a sandstorm", "in a meteor shower", "in a parallel world", "at the end of the world",
    "in the year 3000", "in the stone age", "in the roaring twenties", "at midnight", "at noon", "in spring",
    "in late autumn",
)  # fmt: skip

ACTIONS = (
    "holding", "riding", "chasing", "painting", "guarding", "eating", "watching", "carrying", "becoming",
    "dreaming of", "building", "repairing", "fighting", "hugging", "surrounded by", "sitting beside", "standing on",
    "hiding behind", "made of", "talking to", "juggling", "stealing", "feeding", "burying", "worshipping",
    "playing with", "running from", "wearing the head of", "growing out of", "reflected in", "trapped inside",
    "selling", "drawing", "photographing", "dancing with", "floating above", "sleeping under", "turning into",
    "fused with", "shaped like",
)  # fmt: skip
"""Between two subjects."""

GARMENTS = (
    "cloak", "robe", "dress", "suit", "armour", "kimono", "coat", "jacket", "scarf", "hat", "crown", "mask", "helmet",
    "cape", "uniform", "sweater", "veil", "gown", "hood", "apron", "boots", "gloves", "jumpsuit", "tunic", "poncho",
    "turban", "bonnet", "monocle", "goggles", "necklace",
)  # fmt: skip

STYLES = (
    "fantasy", "baroque", "art nouveau", "cyberpunk", "impressionist", "studio anime", "surrealist", "gothic",
    "minimalist", "steampunk", "renaissance", "pop art", "romanticism", "ukiyo-e", "photorealistic", "art deco",
    "science fiction", "expressionist", "vaporwave", "dutch golden age", "cubist", "retro futurism", "folk art",
    "bauhaus", "pointillist", "noir", "rococo", "brutalist", "pre-raphaelite", "vintage travel", "constructivist",
    "dark fairy tale", "medieval manuscript", "film photography", "symbolist", "claymation", "children's storybook",
    "psychedelic", "afrofuturist", "solarpunk", "dieselpunk", "biopunk", "cosmic horror", "film noir", "grindhouse",
    "space opera", "western", "wuxia", "heraldic", "icon painting", "cave painting", "hieroglyphic",
    "persian miniature", "mughal miniature", "chinese ink wash", "celtic knotwork", "mosaic tile",
    "stencil street art", "graffiti", "op art", "fauvist", "suprematist", "futurist", "dadaist", "precisionist",
    "tonalist", "luminist", "barbizon", "venetian", "flemish", "mannerist", "neoclassical", "academic", "realist",
    "hyperrealist", "magic realism", "naive art", "outsider art", "glitch art", "low poly", "voxel", "wireframe",
    "claymation set", "stop motion", "paper cutout", "origami", "quilled paper", "batik", "tie dye", "embroidery",
    "cross stitch", "stained glass", "enamel", "scrimshaw", "marquetry", "sgraffito", "cyanotype", "daguerreotype",
    "tintype", "lomography", "infrared photo", "polaroid", "double exposure", "silkscreen", "risograph", "lithograph",
    "aquatint", "drypoint", "chiaroscuro", "sfumato", "grisaille", "impasto", "gouache", "tempera", "encaustic",
    "charcoal",
)  # fmt: skip

LIGHTS = (
    "dramatic lighting", "soft light", "golden hour", "volumetric light", "studio lighting", "moonlight", "rim light",
    "candle light", "neon glow", "overcast sky", "backlit", "morning haze", "harsh shadows", "low key light",
    "light through leaves", "twilight", "firelight", "pale winter sun", "stage light", "god rays",
    "cinematic lighting", "backlighting", "blue hour", "hard light", "diffuse light", "warm light", "cold light",
    "split lighting", "rembrandt lighting", "spotlight", "bounce light", "lens flare", "light leaks", "dappled light",
    "lightning flash", "lantern light", "aurora glow", "phosphorescence", "underwater caustics", "x-ray glow",
    "sunbeams", "silhouette", "chiaroscuro light", "foggy light", "candlelit", "lamplight", "starlight", "lava glow",
    "screen glow",
)  # fmt: skip

COLOURS = (
    "pink", "turquoise", "crimson", "emerald", "indigo", "ochre", "ivory", "violet", "amber", "cobalt", "jade",
    "scarlet", "sapphire", "charcoal", "lavender", "mustard", "teal", "maroon", "beige", "olive", "coral", "rust",
    "navy", "lilac", "cream", "bronze", "silver", "copper",
)  # fmt: skip

MODIFIERS = (
    "highly detailed", "sharp focus", "intricate", "8 k", "smooth", "wide angle", "cinematic", "elegant lines",
    "muted colours", "vivid colours", "symmetrical", "close up", "full body", "depth of field", "centred", "ornate",
    "award winning", "hyper detailed", "film grain", "bokeh", "clean background", "bold outlines", "low angle",
    "pastel palette", "high contrast", "monochrome", "fine texture", "thick brush strokes", "from above", "glossy",
    "long exposure", "soft edges", "geometric", "flat colours", "grainy paper", "tilt shift", "golden ratio",
    "limited palette", "crosshatching", "dust in the air", "iridescent", "shallow focus", "isometric", "panoramic",
    "weathered paper", "white border", "mist", "lush", "serene", "trending", "masterpiece", "octane", "concept art",
    "digital painting", "illustration", "4 k", "hd", "photorealism", "ray tracing", "fantasy art", "beautiful",
    "epic", "dramatic", "detailed face", "studio quality", "artistic", "realistic", "ultra realistic",
    "hyper realistic", "matte", "render", "unreal", "dynamic pose", "elegant", "atmospheric", "moody", "vibrant",
    "colourful", "dark", "ethereal", "dreamy", "mystical", "majestic", "delicate", "stunning", "perfect composition",
    "rule of thirds", "centered", "wide shot", "portrait", "full shot", "35 mm", "50 mm", "85 mm", "macro", "fisheye",
    "aerial", "bird's eye view", "worm's eye view", "over the shoulder", "symmetry", "fractal", "volumetric",
    "subsurface scattering", "global illumination", "ambient occlusion", "hdr", "high resolution", "crisp", "clean",
    "sleek", "polished", "rough", "textured", "layered", "flowing", "swirling", "splashes", "ink splatter",
    "brush strokes", "palette knife", "line art", "cel shaded", "flat shading", "gradient", "halftone", "stippling",
    "etching", "engraved", "embossed", "gilded frame", "sepia", "black and white", "duotone", "neon colours",
    "earth tones", "jewel tones", "pastel", "saturated", "desaturated", "warm palette", "cool palette",
    "teal and orange", "red and black", "gold and white", "blue and silver", "minimal", "maximal", "busy",
    "empty background", "white background", "black background", "blurred background", "plain backdrop", "particles",
    "embers", "petals", "feathers", "snowflakes", "raindrops", "bubbles", "smoke", "steam", "fog", "dust", "sparks",
    "glitter", "stars", "detailed eyes", "flowing hair", "intricate armour", "detailed clothing", "character design",
    "creature design", "environment design", "vehicle design", "key visual", "splash art", "game asset", "storyboard",
    "turnaround", "behind the scenes", "production still", "album art", "book illustration", "poster design",
    "sticker design", "tattoo design", "fashion shoot", "product shot", "editorial", "street photography",
    "documentary", "nature photography",
)  # fmt: skip
"""What everybody's prompts end in."""

GIVEN_NAMES = (
    "tavo", "mirel", "osk", "lenna", "brun", "isolt", "kaj", "perrin", "wenda", "zoltan", "amice", "corvin", "dalia",
    "edrin", "fenna", "goran", "hesper", "ilka", "joram", "katla", "lorcan", "maren", "nils", "oriel", "piet",
    "quill", "runa", "stellan", "thora", "ulric",
)  # fmt: skip

FAMILY_STARTS = (
    "vos", "mer", "hal", "tren", "kor", "bel", "dra", "fen", "gar", "lin", "mor", "nor", "pel", "quar", "ros", "sel",
    "tor", "und", "var", "wes", "yar", "zel", "ash", "brim", "cald", "dun", "esk", "fal", "gren", "holm",
)  # fmt: skip

FAMILY_ENDS = (
    "sin", "rick", "lund", "dale", "ovic", "berg", "well", "mann", "eski", "ard", "aux", "enko", "stad", "quist",
    "forth", "more", "ini", "ander", "ley", "mere",
)  # fmt: skip

ONSETS = (
    "b", "bl", "br", "c", "ch", "cl", "d", "dr", "f", "fl", "g", "gl", "gr", "h", "j", "k", "kr", "l", "m", "n", "p",
    "pl", "qu", "r", "s", "sh", "sk", "sn", "t", "th", "tr", "v", "w", "y", "z", "zh",
)  # fmt: skip

VOWELS = ("a", "e", "i", "o", "u", "y", "ai", "au", "ea", "ei", "ia", "oo", "ou")

CODAS = (
    "", "b", "ck", "d", "ff", "g", "l", "ld", "m", "mp", "n", "nd", "ng", "p", "r", "rk", "s", "sk", "t", "x", "zz",
)  # fmt: skip
"""Of these three a word is made up that hardly two prompts have in common."""
