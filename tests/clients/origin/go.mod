module origin

go 1.19
