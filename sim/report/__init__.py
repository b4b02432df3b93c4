"""Tables, figures and the HTML report of finished runs."""
