"""Steps of the search around the policies: fusing, merged epochs, repairs, chips."""
